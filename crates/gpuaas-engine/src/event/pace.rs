//! How often MAAS' event feed is looked at.
//!
//! A look costs a region 10 ms (docs/maas.md#costs), and what it brings late is lost time only where
//! somebody waits for it. So the pace follows what is open:
//!
//! | open at the site | pace |
//! |---|---|
//! | a run that MAAS holds up, such as a commissioning | the usual one, and a part of it for as long as looks find what lets a run act: what happens to many machines at once happens in a row |
//! | only runs whose hosts go on by themselves ([`HOST_GOES_ON`]) | a seventh as often: when their deployment ends, the host's boot goes on whether we know or not |
//! | only nodes in service | that of a quiet site |
//! | nothing | none |

use gpuaas_store::StoreError;
use gpuaas_types::SiteId;
use gpuaas_types::steps::HOST_GOES_ON;

use crate::shared::Shared;

/// After a look that found what lets a run act, the next comes in this part of the usual time. Each
/// look that finds no such thing doubles it.
const BUSY_PART: f64 = 0.25;
/// How many times the usual time is between two looks while hosts go on by themselves: the longest
/// while any run moves.
pub(crate) const HOSTS_FACTOR: f64 = 6.6;

/// How often the feed of a site is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FeedPace {
    /// Nobody has to look.
    Unwatched,
    /// Only nodes in service are there: so many seconds between two looks.
    Quiet(f64),
    /// Hosts go on by themselves.
    Hosts,
    /// MAAS holds runs up.
    Busy,
}

/// The pace of a site, as its open runs and its nodes ask for it.
pub(crate) async fn of_site(shared: &Shared, site_id: SiteId) -> FeedPace {
    read(shared, site_id).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot tell whether to watch the site");
        FeedPace::Unwatched
    })
}

async fn read(shared: &Shared, site_id: SiteId) -> Result<FeedPace, StoreError> {
    let config = &shared.config;
    let steps = shared.store.moving_steps(site_id).await?;
    if steps.iter().any(|step| !HOST_GOES_ON.contains(step)) {
        return Ok(FeedPace::Busy);
    }
    if !steps.is_empty() {
        return Ok(FeedPace::Hosts);
    }
    let follow =
        config.idle_poll_seconds > 0.0 && shared.store.has_nodes_in_service(site_id).await?;
    if !follow {
        return Ok(FeedPace::Unwatched);
    }
    let seconds = match shared.store.site(site_id).await?.spec.idle_poll_seconds {
        0 => config.idle_poll_seconds,
        of_site => f64::from(of_site) * shared.clock.factor().max(1.0),
    };
    Ok(FeedPace::Quiet(seconds.max(config.poll_seconds)))
}

impl FeedPace {
    /// Seconds from the beginning of a look, which took `took`, to the next one, where the usual time
    /// is `usual` and `part` what [`part_after`] says of the look.
    pub(crate) fn seconds(self, usual: f64, part: f64, took: f64) -> f64 {
        match self {
            Self::Quiet(seconds) => seconds,
            Self::Hosts => usual * HOSTS_FACTOR,
            // A region that answers slowly is not asked without a pause.
            Self::Busy | Self::Unwatched => (usual * part).max((2.0 * took).min(usual)),
        }
    }

    /// Whether new work ends the pause: nobody moves yet.
    pub(crate) const fn is_quiet(self) -> bool {
        matches!(self, Self::Quiet(_))
    }
}

/// The part of the usual time until the next look, after one that found what lets a run act, or did
/// not; `part` is that of the look before.
pub(crate) fn part_after(part: f64, found: bool) -> f64 {
    if found { BUSY_PART } else { (part * 2.0).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_quick_only_where_somebody_waits_for_what_they_bring() {
        let quick = part_after(1.0, true);
        assert_eq!(FeedPace::Busy.seconds(1.0, quick, 0.01), 0.25);
        let parts = [false; 3].iter().scan(quick, |part, found| {
            *part = part_after(*part, *found);
            Some(*part)
        });
        assert_eq!(parts.collect::<Vec<_>>(), [0.5, 1.0, 1.0]);
        assert_eq!(FeedPace::Hosts.seconds(1.0, quick, 0.01), 6.6);
        assert_eq!(FeedPace::Quiet(5.0).seconds(1.0, quick, 0.01), 5.0);
        assert_eq!(FeedPace::Busy.seconds(1.0, quick, 0.3), 0.6, "a slow region");
        assert_eq!(FeedPace::Busy.seconds(1.0, quick, 3.0), 1.0);
    }
}
