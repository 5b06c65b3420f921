-- Archives are here, and not in a folder, so that every control plane of a database has them.
CREATE TABLE bundle (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  digest TEXT NOT NULL UNIQUE,
  reference TEXT NOT NULL,
  built_in BOOLEAN NOT NULL,
  archive BLOB NOT NULL,
  envelope TEXT NOT NULL,
  published_by TEXT NOT NULL,
  published_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX bundle_reference ON bundle (reference) WHERE NOT built_in;

CREATE TABLE bundle_approval (
  site_id BLOB NOT NULL REFERENCES site (id),
  digest TEXT NOT NULL REFERENCES bundle (digest),
  approved_by TEXT NOT NULL,
  approved_at BIGINT NOT NULL,
  PRIMARY KEY (site_id, digest)
);

-- Public keys whose signatures count.
CREATE TABLE bundle_key (
  name TEXT PRIMARY KEY,
  public_key TEXT NOT NULL,
  until BIGINT
);

-- The site bundle and what it requires, by digest: what a run of the revision is given.
ALTER TABLE profile_revision ADD COLUMN bundle_pins TEXT NOT NULL DEFAULT '[]';

-- What the agent last said of each gate of its host.
CREATE TABLE node_gate (
  node_id BLOB NOT NULL REFERENCES node (id),
  gate TEXT NOT NULL,
  run_id BLOB NOT NULL,
  report TEXT NOT NULL,
  since BIGINT NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (node_id, gate)
);
