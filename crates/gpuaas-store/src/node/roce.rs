//! Fabric addresses of hosts, keyed by site and hostname.

use async_recursion::async_recursion as boxed;
use gpuaas_types::api::{Resource, RoceResource, RoceStatus};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::filter::{FilterList, ListFilter};
use gpuaas_types::spec::RoceAssignmentSpec;
use gpuaas_types::{RoceAssignmentId, SiteId, Timestamp};

use crate::audit::rows::{self as audit, NewAuditEntry};
use crate::database::list_filter::with_filter;
use crate::database::{Cols, Conn, args};
use crate::error::StoreError;
use crate::store::Store;

macro_rules! roce_select {
    ($rest:literal) => {
        concat!(
            "SELECT roce_assignment.id, site.name, roce_assignment.hostname, \
             roce_assignment.interface, roce_assignment.subnet_cidr, roce_assignment.ip_address, \
             roce_assignment.revision, roce_assignment.created_at, roce_assignment.updated_at \
             FROM roce_assignment JOIN site ON site.id = roce_assignment.site_id ",
            $rest
        )
    };
}

fn assignment(mut cols: Cols<'_>) -> Result<RoceResource, StoreError> {
    Ok(Resource {
        id: cols.id(RoceAssignmentId)?,
        spec: RoceAssignmentSpec {
            site: cols.next()?,
            hostname: cols.next()?,
            interface: cols.next()?,
            subnet_cidr: cols.next()?,
            ip_address: cols.next()?,
        },
        status: RoceStatus::default(),
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

async fn change(
    conn: &mut Conn,
    now: Timestamp,
    site_id: SiteId,
    interface: &str,
    spec: &RoceAssignmentSpec,
) -> Result<RoceResource, StoreError> {
    const OF_INTERFACE: &str = roce_select!(
        "WHERE roce_assignment.site_id = $1 AND roce_assignment.hostname = $2 \
         AND roce_assignment.interface = $3"
    );
    let hostname = &spec.hostname;
    let known = conn.first(OF_INTERFACE, args![site_id.0, hostname, interface]).await?;
    let missing = || StoreError::not_found("fabric address", format!("{interface} of {hostname}"));
    let known = assignment(known.ok_or_else(missing)?.cols())?;
    let taken = conn
        .first(
            "SELECT hostname, interface, ip_address FROM roce_assignment WHERE site_id = $1 \
             AND id <> $2 AND (subnet_cidr = $3 AND ip_address = $4 \
             OR hostname = $5 AND interface = $6)",
            args![
                site_id.0,
                known.id.0,
                &spec.subnet_cidr,
                &spec.ip_address,
                hostname,
                &spec.interface
            ],
        )
        .await?;
    if let Some(taken) = taken {
        let mut cols = taken.cols();
        let (holder, other, address): (String, String, String) =
            (cols.next()?, cols.next()?, cols.next()?);
        let detail = format!("{address} is already assigned to {other} of {holder}");
        let code = if holder == *hostname && other == spec.interface {
            ProblemCode::RoceInterfaceTaken
        } else {
            ProblemCode::RoceAddressTaken
        };
        return Err(StoreError::conflict(code, detail));
    }
    conn.execute(
        "UPDATE roce_assignment SET interface = $2, subnet_cidr = $3, ip_address = $4, \
         revision = revision + 1, updated_at = $5 WHERE id = $1",
        args![known.id.0, &spec.interface, &spec.subnet_cidr, &spec.ip_address, now],
    )
    .await?;
    let (spec, revision) = (spec.clone(), known.revision + 1);
    Ok(Resource { spec, revision, updated_at: now, ..known })
}

impl Store {
    /// Adds a fabric address; `spec.site` is the name of the site `site_id`.
    ///
    /// # Errors
    /// `roce_interface_taken` or `roce_address_taken`, each naming what is there;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn add_roce_assignment(
        &self,
        now: Timestamp,
        id: RoceAssignmentId,
        site_id: SiteId,
        spec: RoceAssignmentSpec,
        audit: NewAuditEntry,
    ) -> Result<RoceResource, StoreError> {
        let request = spec.clone();
        self.write(move |conn| {
            Box::pin(async move {
                let made = conn
                    .execute(
                        "INSERT INTO roce_assignment (id, site_id, hostname, interface, \
                         subnet_cidr, ip_address, revision, created_at, updated_at) \
                         VALUES ($1, $2, $3, $4, $5, $6, 1, $7, $7) ON CONFLICT DO NOTHING",
                        args![
                            id.0,
                            site_id.0,
                            &request.hostname,
                            &request.interface,
                            &request.subnet_cidr,
                            &request.ip_address,
                            now
                        ],
                    )
                    .await?;
                if made == 1 {
                    return audit::append(conn, now, &audit).await;
                }
                let holder = conn
                    .first(
                        "SELECT hostname, interface FROM roce_assignment \
                         WHERE site_id = $1 AND subnet_cidr = $2 AND ip_address = $3",
                        args![site_id.0, &request.subnet_cidr, &request.ip_address],
                    )
                    .await?;
                let Some(holder) = holder else {
                    let RoceAssignmentSpec { hostname, interface, .. } = &request;
                    let detail = format!("{interface} of {hostname} already has an address");
                    return Err(StoreError::conflict(ProblemCode::RoceInterfaceTaken, detail));
                };
                let mut cols = holder.cols();
                let (hostname, interface): (String, String) = (cols.next()?, cols.next()?);
                let address = &request.ip_address;
                let detail = format!("{address} is already assigned to {interface} of {hostname}");
                Err(StoreError::conflict(ProblemCode::RoceAddressTaken, detail))
            })
        })
        .await?;
        let status = RoceStatus::default();
        Ok(Resource { id, spec, status, revision: 1, created_at: now, updated_at: now })
    }

    /// Changes the fabric address of `interface` of a host to what `spec` says, its interface
    /// included.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; `roce_interface_taken` or `roce_address_taken`;
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`]. In each case nothing was changed.
    #[boxed]
    pub async fn change_roce_assignment(
        &self,
        now: Timestamp,
        site_id: SiteId,
        interface: &str,
        spec: RoceAssignmentSpec,
        audit: NewAuditEntry,
    ) -> Result<RoceResource, StoreError> {
        let interface = interface.to_owned();
        self.write(move |conn| {
            Box::pin(async move {
                let changed = change(conn, now, site_id, &interface, &spec).await?;
                audit::append(conn, now, &audit).await?;
                Ok(changed)
            })
        })
        .await
    }

    /// Removes the fabric address of an interface of a host.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn remove_roce_assignment(
        &self,
        now: Timestamp,
        site_id: SiteId,
        hostname: &str,
        interface: &str,
        audit: NewAuditEntry,
    ) -> Result<(), StoreError> {
        let values = args![site_id.0, hostname, interface];
        let name = format!("{interface} of {hostname}");
        self.write(move |conn| {
            Box::pin(async move {
                let sql = "DELETE FROM roce_assignment WHERE site_id = $1 AND hostname = $2 \
                     AND interface = $3";
                match conn.execute(sql, values).await? {
                    0 => Err(StoreError::not_found("fabric address", name)),
                    _ => audit::append(conn, now, &audit).await,
                }
            })
        })
        .await
    }

    /// All fabric addresses, by site, hostname and interface.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn roce_assignments(&self) -> Result<Vec<RoceResource>, StoreError> {
        self.list_roce_assignments(None).await
    }

    /// The fabric addresses that a filter lets pass, by site, hostname and interface.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn list_roce_assignments(
        &self,
        filter: Option<&ListFilter>,
    ) -> Result<Vec<RoceResource>, StoreError> {
        const SQL: &str = roce_select!(
            "WHERE TRUE {FILTER} \
             ORDER BY site.name, roce_assignment.hostname, roce_assignment.interface"
        );
        let mut values = args![];
        let sql = with_filter(SQL, FilterList::Roce, filter, &mut values)?;
        let rows = self.reader().await?.all(sql, values).await?;
        rows.iter().map(|row| assignment(row.cols())).collect()
    }

    /// The fabric addresses of one host, by interface.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Corrupt`].
    #[boxed]
    pub async fn roce_assignments_of_host(
        &self,
        site_id: SiteId,
        hostname: &str,
    ) -> Result<Vec<RoceResource>, StoreError> {
        let sql = roce_select!(
            "WHERE roce_assignment.site_id = $1 AND roce_assignment.hostname = $2 \
             ORDER BY roce_assignment.interface"
        );
        let rows = self.reader().await?.all(sql, args![site_id.0, hostname]).await?;
        rows.iter().map(|row| assignment(row.cols())).collect()
    }
}
