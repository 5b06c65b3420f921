//! In which archive, and which of its components, each package is that a recipe or a bundle names.
//!
//! A package that no source of a build has is found out after an hour, and an optional one never: the image
//! is green and has no driver. The table is `images/packages.tsv`; what it does not have is unknown and is
//! left to the build.

const TABLE: &str = include_str!("../../../images/packages.tsv");
/// What a cell says that nobody has checked.
pub(crate) const UNKNOWN: &str = "?";
/// Archives of distributions.
pub(crate) const DISTRIBUTIONS: [&str; 2] = ["ubuntu", "debian"];

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageRow<'a> {
    /// Name of the release, such as `noble`.
    pub release: &'a str,
    /// Name of the package.
    pub package: &'a str,
    /// `ubuntu`, `debian`, the name of a repository of the recipe, or `?`.
    pub archive: &'a str,
    /// Component of a distribution's archive, `-` of another one, or `?`.
    pub component: &'a str,
    /// Recipes and bundles that name it.
    pub asked_by: &'a str,
}

/// Every row.
pub fn package_rows() -> impl Iterator<Item = PackageRow<'static>> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines.filter_map(|line| {
        let mut cells = line.split('\t');
        Some(PackageRow {
            release: cells.next()?,
            package: cells.next()?,
            archive: cells.next()?,
            component: cells.next()?,
            asked_by: cells.next()?,
        })
    })
}
