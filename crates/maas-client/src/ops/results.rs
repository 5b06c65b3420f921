use crate::client::{Call, Client, path_segment};
use crate::encode::Params;
use crate::error::Error;
use crate::model::ScriptSet;

/// Kinds of script sets (docs/maas.md#script-results).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// Scripts of a commissioning.
    Commissioning,
    /// Scripts of a test.
    Testing,
    /// The installation of an operating system.
    Installation,
    /// Release scripts, from 3.5 on.
    Release,
}

impl ResultType {
    /// The value of the parameter `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Commissioning => "commissioning",
            Self::Testing => "testing",
            Self::Installation => "installation",
            Self::Release => "release",
        }
    }
}

/// The script sets that a machine points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CurrentSet {
    /// Of the last commissioning.
    Commissioning,
    /// Of the last testing.
    Testing,
    /// Of the last installation; its log is the result named `/tmp/install.log`.
    Installation,
}

/// Selects script results (docs/maas.md#script-results).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultQuery {
    /// Only of this kind; ignored for a current set.
    pub kind: Option<ResultType>,
    /// Only of these scripts, by name or tag; empty for all.
    pub filters: Vec<String>,
    /// Whether outputs are sent along; they are large.
    pub include_output: bool,
}

impl ResultQuery {
    fn to_params(&self) -> Params {
        let mut query = Params::default();
        query.opt("type", self.kind.map(ResultType::as_str));
        if self.include_output {
            query.add("include_output", "1");
        }
        if !self.filters.is_empty() {
            query.add("filters", self.filters.join(","));
        }
        query
    }
}

impl Client {
    /// All script sets of a machine (docs/maas.md#script-results).
    ///
    /// # Errors
    /// `NotFound`; see [`Error`].
    pub async fn results(
        &self,
        system_id: &str,
        query: &ResultQuery,
    ) -> Result<Vec<ScriptSet>, Error> {
        let path = format!("nodes/{}/results/", path_segment(system_id)?);
        self.send_for_json(Call::get(path, "GET nodes/{id}/results/").query(query.to_params()))
            .await
    }

    /// One current script set (docs/maas.md#script-results).
    ///
    /// # Errors
    /// Bad request (3.6 on) or `NotFound` where there is none; see [`Error`].
    pub async fn current_results(
        &self,
        system_id: &str,
        set: CurrentSet,
        query: &ResultQuery,
    ) -> Result<ScriptSet, Error> {
        let (name, label) = match set {
            CurrentSet::Commissioning => {
                ("current-commissioning", "GET nodes/{id}/results/current-commissioning/")
            }
            CurrentSet::Testing => ("current-testing", "GET nodes/{id}/results/current-testing/"),
            CurrentSet::Installation => {
                ("current-installation", "GET nodes/{id}/results/current-installation/")
            }
        };
        let path = format!("nodes/{}/results/{name}/", path_segment(system_id)?);
        let query = ResultQuery { kind: None, ..query.clone() }.to_params();
        self.send_for_json(Call::get(path, label).query(query)).await
    }
}
