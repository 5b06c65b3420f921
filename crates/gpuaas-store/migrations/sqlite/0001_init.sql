-- Facts of the installation itself, such as which master key sealed its secrets.
CREATE TABLE store_meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

CREATE TABLE secret (
  owner BLOB NOT NULL,
  name TEXT NOT NULL,
  sealed BLOB NOT NULL,
  PRIMARY KEY (owner, name)
);

CREATE TABLE site (
  id BLOB PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL,
  status TEXT NOT NULL,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- Beside the site, because it is written at every look at the event feed.
CREATE TABLE site_watch (
  site_id BLOB PRIMARY KEY REFERENCES site (id),
  event_cursor BIGINT,
  holder TEXT NOT NULL,
  lease_token BIGINT NOT NULL,
  lease_until BIGINT NOT NULL
);

CREATE TABLE profile (
  id BLOB PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- Never updated: a run pins one of them.
CREATE TABLE profile_revision (
  profile_id BLOB NOT NULL REFERENCES profile (id),
  revision BIGINT NOT NULL,
  spec TEXT NOT NULL,
  bundle_digest TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (profile_id, revision)
);

CREATE TABLE roce_assignment (
  id BLOB PRIMARY KEY,
  site_id BLOB NOT NULL REFERENCES site (id),
  hostname TEXT NOT NULL,
  interface TEXT NOT NULL,
  subnet_cidr TEXT NOT NULL,
  ip_address TEXT NOT NULL,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (site_id, hostname, interface),
  UNIQUE (site_id, subnet_cidr, ip_address)
);
CREATE INDEX roce_assignment_ip ON roce_assignment (ip_address);

CREATE TABLE node (
  id BLOB PRIMARY KEY,
  site_id BLOB NOT NULL REFERENCES site (id),
  profile_id BLOB NOT NULL REFERENCES profile (id),
  hostname TEXT NOT NULL,
  state TEXT NOT NULL,
  system_id TEXT,
  bmc_address TEXT,
  hardware TEXT NOT NULL,
  run_id BLOB,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
-- A name, a BMC and a machine belong to one node at a time; a node that left gives them up.
CREATE UNIQUE INDEX node_live_hostname ON node (site_id, hostname)
  WHERE state NOT IN ('retired', 'detached', 'deleted');
CREATE UNIQUE INDEX node_live_bmc_address ON node (site_id, bmc_address)
  WHERE state NOT IN ('retired', 'detached', 'deleted') AND bmc_address IS NOT NULL;
CREATE UNIQUE INDEX node_live_system_id ON node (site_id, system_id)
  WHERE state NOT IN ('retired', 'detached', 'deleted') AND system_id IS NOT NULL;
CREATE INDEX node_hostname ON node (hostname);
CREATE INDEX node_system_id ON node (system_id);
CREATE INDEX node_bmc_address ON node (bmc_address);

CREATE TABLE node_mac (
  mac_address TEXT NOT NULL,
  node_id BLOB NOT NULL REFERENCES node (id),
  PRIMARY KEY (mac_address, node_id)
);

-- Beside the node, because it is written every few seconds per node.
CREATE TABLE heartbeat (
  node_id BLOB PRIMARY KEY REFERENCES node (id),
  run_id BLOB NOT NULL,
  at BIGINT NOT NULL,
  agent_version TEXT NOT NULL
);

CREATE TABLE run (
  id BLOB PRIMARY KEY,
  node_id BLOB NOT NULL REFERENCES node (id),
  site_id BLOB NOT NULL REFERENCES site (id),
  kind TEXT NOT NULL,
  step TEXT NOT NULL,
  status TEXT NOT NULL,
  profile_id BLOB NOT NULL,
  profile_revision BIGINT NOT NULL,
  memory TEXT NOT NULL,
  wait TEXT,
  park TEXT,
  created_at BIGINT NOT NULL,
  step_since BIGINT NOT NULL,
  ended_at BIGINT,
  due_at BIGINT NOT NULL,
  was_due_at BIGINT NOT NULL,
  wake_seq BIGINT NOT NULL,
  handled_seq BIGINT NOT NULL,
  lease_token BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,
  FOREIGN KEY (profile_id, profile_revision) REFERENCES profile_revision (profile_id, revision)
);
CREATE UNIQUE INDEX run_open_per_node ON run (node_id)
  WHERE status IN ('running', 'waiting', 'parked');
CREATE INDEX run_due ON run (due_at) WHERE status IN ('running', 'waiting');
CREATE INDEX run_node ON run (node_id, created_at);
CREATE INDEX run_open_profile ON run (profile_id, step)
  WHERE status IN ('running', 'waiting', 'parked');

-- Append-only.
CREATE TABLE transition (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id BLOB NOT NULL REFERENCES run (id),
  step TEXT NOT NULL,
  at BIGINT NOT NULL,
  cause TEXT NOT NULL
);
CREATE INDEX transition_run ON transition (run_id, id);

-- Append-only; the outcome is filled in once.
CREATE TABLE effect_attempt (
  id BLOB PRIMARY KEY,
  run_id BLOB NOT NULL REFERENCES run (id),
  step TEXT NOT NULL,
  effect TEXT NOT NULL,
  number BIGINT NOT NULL,
  at BIGINT NOT NULL,
  before_status BIGINT,
  outcome TEXT,
  ended_at BIGINT
);
CREATE INDEX effect_attempt_run ON effect_attempt (run_id, at);

-- Append-only.
CREATE TABLE timeline_event (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  node_id BLOB NOT NULL REFERENCES node (id),
  run_id BLOB,
  step TEXT,
  source TEXT NOT NULL,
  code TEXT NOT NULL,
  text TEXT NOT NULL,
  at BIGINT NOT NULL
);
CREATE INDEX timeline_event_node ON timeline_event (node_id, id);
CREATE INDEX timeline_event_run ON timeline_event (run_id, id);

CREATE TABLE observation (
  node_id BLOB PRIMARY KEY REFERENCES node (id),
  status BIGINT NOT NULL,
  status_at BIGINT NOT NULL,
  event_id BIGINT NOT NULL,
  machine TEXT,
  read_at BIGINT NOT NULL,
  vanished BOOLEAN NOT NULL,
  rebooted_at BIGINT
);

-- Append-only.
CREATE TABLE report (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id BLOB NOT NULL REFERENCES run (id),
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  at BIGINT NOT NULL
);
CREATE INDEX report_run ON report (run_id, id);
CREATE UNIQUE INDEX report_first_heartbeat ON report (run_id) WHERE kind = 'first_heartbeat';

CREATE TABLE token (
  id BLOB PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  purpose TEXT NOT NULL,
  node_id BLOB REFERENCES node (id),
  run_id BLOB REFERENCES run (id),
  single_use BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  usable_from BIGINT NOT NULL,
  expires_at BIGINT,
  used_at BIGINT,
  revoked_at BIGINT
);
CREATE INDEX token_run ON token (run_id);
CREATE INDEX token_node ON token (node_id);

CREATE TABLE node_task (
  id BLOB PRIMARY KEY,
  node_id BLOB NOT NULL REFERENCES node (id),
  run_id BLOB NOT NULL REFERENCES run (id),
  spec TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  delivered_at BIGINT,
  finished_at BIGINT,
  result TEXT
);
CREATE INDEX node_task_pending ON node_task (node_id) WHERE finished_at IS NULL;

-- Append-only.
CREATE TABLE audit_entry (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at BIGINT NOT NULL,
  actor TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail TEXT NOT NULL
);

CREATE TABLE idempotency_record (
  key TEXT PRIMARY KEY,
  request_hash BLOB NOT NULL,
  response TEXT NOT NULL,
  created_at BIGINT NOT NULL
);
