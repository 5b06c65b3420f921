//! Rows of `node` and `node_mac`.

use std::collections::BTreeSet;

use gpuaas_core::record::{AgentRecord, NodeHardware, NodeRecord};
use gpuaas_types::codes::ProblemCode;
use gpuaas_types::{NodeId, NodeState, ProfileId, RunId, SiteId, Timestamp};
use secrecy::SecretString;

use crate::database::{Cols, Conn, RowsStatement, Val, args, with_list};
use crate::error::StoreError;
use crate::site::rows::sites_of_region;

pub(crate) const BMC_PASSWORD: &str = "bmc_password";
/// How MAAS logs in at the BMC of a node in service.
pub(crate) const BMC_ACCESS: &str = "bmc_access";

/// A node to make.
#[derive(Debug, Clone)]
pub struct NewNode {
    /// Identifier of the node.
    pub id: NodeId,
    /// Site of the node.
    pub site_id: SiteId,
    /// Profile of the node.
    pub profile_id: ProfileId,
    /// Short hostname, unique among the live nodes of the site.
    pub hostname: String,
    /// Hardware as the operator described it.
    pub hardware: NodeHardware,
    /// Password of the BMC; sealed before it is stored.
    pub bmc_password: Option<SecretString>,
}

/// Columns of a [`NodeRecord`]; needs [`node_from!`].
macro_rules! node_columns {
    () => {
        "node.id, node.site_id, node.profile_id, node.hostname, node.state, node.system_id, \
         node.hardware, node.run_id, heartbeat.at, heartbeat.silent_since, heartbeat.online_since, \
         heartbeat.troubles, node.revision, node.created_at, node.updated_at"
    };
}
pub(crate) use node_columns;

/// Tables of [`node_columns!`].
macro_rules! node_from {
    () => {
        "node LEFT JOIN heartbeat ON heartbeat.node_id = node.id"
    };
}
pub(crate) use node_from;

pub(crate) fn read_node(cols: &mut Cols<'_>) -> Result<NodeRecord, StoreError> {
    Ok(NodeRecord {
        id: cols.id(NodeId)?,
        site_id: cols.id(SiteId)?,
        profile_id: cols.id(ProfileId)?,
        hostname: cols.next()?,
        state: cols.enum_str()?,
        system_id: cols.next()?,
        hardware: cols.json()?,
        run_id: cols.opt_id(RunId)?,
        heartbeat_at: cols.opt_at()?,
        agent: AgentRecord {
            silent_since: cols.opt_at()?,
            online_since: cols.opt_at()?,
            troubles: cols.next::<Option<String>>()?.unwrap_or_default(),
        },
        revision: cols.next()?,
        created_at: cols.at()?,
        updated_at: cols.at()?,
    })
}

/// Names the node that is in the way of a new one.
async fn taken_error(conn: &mut Conn, node: &NewNode) -> Result<StoreError, StoreError> {
    if let Some(error) = hostname_in_use(conn, node.site_id, &node.hostname).await? {
        return Ok(error);
    }
    if let Some(error) = address_in_use(conn, node.site_id, node.id, &node.hardware).await? {
        return Ok(error);
    }
    Ok(StoreError::conflict(ProblemCode::AlreadyExists, format!("node {} exists", node.id)))
}

/// Names the live node of the site that has this hostname.
pub(crate) async fn hostname_in_use(
    conn: &mut Conn,
    site_id: SiteId,
    hostname: &str,
) -> Result<Option<StoreError>, StoreError> {
    const LIVE: &str = "SELECT id, state FROM node WHERE site_id = $1 AND hostname = $2 \
         AND state NOT IN ('retired', 'detached', 'deleted')";
    let Some(row) = conn.first(LIVE, args![site_id.0, hostname]).await? else { return Ok(None) };
    let mut cols = row.cols();
    let (id, state) = (cols.id(NodeId)?, cols.enum_str::<NodeState>()?);
    let detail = format!("this site already has node {hostname} ({id}), which is {state}");
    Ok(Some(StoreError::conflict(ProblemCode::HostnameTaken, detail)))
}

/// Whether the password of one BMC must not be sent to the other: another address, driver or user.
pub(crate) fn is_other_bmc(one: &NodeHardware, other: &NodeHardware) -> bool {
    (&one.bmc_address, &one.power_type, &one.bmc_user)
        != (&other.bmc_address, &other.power_type, &other.bmc_user)
}

/// Names another live node of the site's region that has the BMC or a MAC address of this hardware.
pub(crate) async fn address_in_use(
    conn: &mut Conn,
    site_id: SiteId,
    node_id: NodeId,
    hardware: &NodeHardware,
) -> Result<Option<StoreError>, StoreError> {
    // The BMC's comes first: its column of MAC addresses is empty.
    const HOLDERS: &str = concat!(
        "SELECT hostname, id, '' AS mac_address FROM node WHERE id <> $2 AND bmc_address = $3 \
         AND site_id IN ",
        sites_of_region!(),
        " AND state NOT IN ('retired', 'detached', 'deleted') UNION ALL \
         SELECT node.hostname, node.id, node_mac.mac_address FROM node_mac \
         JOIN node ON node.id = node_mac.node_id WHERE node.id <> $2 AND node.site_id IN ",
        sites_of_region!(),
        " AND node.state NOT IN ('retired', 'detached', 'deleted') \
         AND node_mac.mac_address IN ({LIST}) ORDER BY mac_address LIMIT 1"
    );
    let (bmc, macs) = (hardware.bmc_address.as_deref(), macs(hardware));
    if bmc.is_none() && macs.is_empty() {
        return Ok(None);
    }
    lock_addresses(conn, bmc, &macs).await?;
    let sql = with_list(HOLDERS, 4, macs.len().max(1));
    let mut values = args![site_id.0, node_id.0, bmc];
    values.extend(macs.iter().map(|mac| Val::from(mac.as_str())));
    if macs.is_empty() {
        values.push(Val::Text(None));
    }
    let Some(row) = conn.first(sql, values).await? else { return Ok(None) };
    let mut cols = row.cols();
    let (holder, id): (String, _) = (cols.next()?, cols.id(NodeId)?);
    let mac: String = cols.next()?;
    let (code, address) = match bmc {
        Some(bmc) if mac.is_empty() => (ProblemCode::BmcAddressTaken, format!("BMC address {bmc}")),
        _ => (ProblemCode::MacAddressTaken, format!("MAC address {mac}")),
    };
    let detail = format!("{address} already belongs to node {holder} ({id})");
    Ok(Some(StoreError::conflict(code, detail)))
}

/// Has those who name one of these addresses at the same moment look for holders one after the other,
/// until the transaction ends. SQLite has one writer anyway.
async fn lock_addresses(
    conn: &mut Conn,
    bmc: Option<&str>,
    macs: &BTreeSet<String>,
) -> Result<(), StoreError> {
    if !conn.is_postgres() {
        return Ok(());
    }
    // In one order, so that two that share several addresses do not wait for each other.
    let mut addresses: BTreeSet<&str> = macs.iter().map(String::as_str).collect();
    addresses.extend(bmc);
    let rows = addresses.into_iter().map(|address| args![address]).collect();
    let lock = RowsStatement {
        head: "INSERT INTO address_lock (address)",
        tail: "ON CONFLICT (address) DO UPDATE SET address = excluded.address",
    };
    conn.query_rows(lock, rows).await.map(drop)
}

/// The MAC addresses of this hardware, lower case, each once.
fn macs(hardware: &NodeHardware) -> BTreeSet<String> {
    hardware.mac_addresses.iter().map(|mac| mac.to_ascii_lowercase()).collect()
}

async fn insert_macs(
    conn: &mut Conn,
    id: NodeId,
    hardware: &NodeHardware,
) -> Result<(), StoreError> {
    let rows: Vec<_> = macs(hardware).iter().map(|mac| args![mac, id.0]).collect();
    if rows.is_empty() {
        return Ok(());
    }
    // At once, where the next request of the group looks for them.
    let insert = RowsStatement { head: "INSERT INTO node_mac (mac_address, node_id)", tail: "" };
    conn.query_rows(insert, rows).await.map(drop)
}

const DELETE_MACS: &str = "DELETE FROM node_mac WHERE node_id = $1";

/// Writes other hardware for a node that exists. Its addresses must be free.
pub(crate) async fn replace_hardware(
    conn: &mut Conn,
    now: Timestamp,
    id: NodeId,
    hardware: &NodeHardware,
) -> Result<(), StoreError> {
    let values =
        vec![id.0.into(), hardware.bmc_address.as_deref().into(), Val::json(hardware)?, now.into()];
    conn.execute(
        "UPDATE node SET bmc_address = $2, hardware = $3, revision = revision + 1, \
         updated_at = $4 WHERE id = $1",
        values,
    )
    .await?;
    conn.execute(DELETE_MACS, args![id.0]).await?;
    insert_macs(conn, id, hardware).await
}

pub(crate) async fn insert_node(
    conn: &mut Conn,
    now: Timestamp,
    node: &NewNode,
    run_id: Option<RunId>,
) -> Result<(), StoreError> {
    let made = conn
        .execute(
            "INSERT INTO node (id, site_id, profile_id, hostname, state, bmc_address, hardware, \
             run_id, revision, created_at, updated_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9, $9) ON CONFLICT DO NOTHING",
            vec![
                node.id.0.into(),
                node.site_id.0.into(),
                node.profile_id.0.into(),
                (&node.hostname).into(),
                NodeState::Registered.as_str().into(),
                node.hardware.bmc_address.as_deref().into(),
                Val::json(&node.hardware)?,
                run_id.map(|id| id.0).into(),
                now.into(),
            ],
        )
        .await?;
    if made == 0 {
        return Err(taken_error(conn, node).await?);
    }
    if let Some(error) = address_in_use(conn, node.site_id, node.id, &node.hardware).await? {
        return Err(error);
    }
    insert_macs(conn, node.id, &node.hardware).await
}

#[cfg(test)]
mod tests {
    use super::DELETE_MACS;
    use crate::database::sqlite::query_plan::scanned;

    /// A correction is of one node, however many there are.
    #[tokio::test]
    async fn sqlite_finds_the_addresses_of_a_node_by_a_key() {
        assert_eq!(scanned(DELETE_MACS, 1).await, [""; 0]);
        assert_eq!(scanned("SELECT * FROM node_mac", 0).await, ["node_mac"]);
    }
}
