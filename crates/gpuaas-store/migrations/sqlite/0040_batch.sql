CREATE TABLE batch (
  id BLOB PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  site_id BLOB NOT NULL REFERENCES site (id),
  profile_id BLOB NOT NULL REFERENCES profile (id),
  profile_revision BIGINT NOT NULL,
  spec TEXT NOT NULL,
  stop TEXT,
  wake_seq BIGINT NOT NULL,
  due_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  ended_at BIGINT
);
CREATE INDEX batch_due ON batch (due_at) WHERE ended_at IS NULL;

CREATE TABLE batch_member (
  batch_id BLOB NOT NULL REFERENCES batch (id),
  position BIGINT NOT NULL,
  node_id BLOB NOT NULL UNIQUE REFERENCES node (id),
  run_id BLOB UNIQUE REFERENCES run (id),
  written_off BOOLEAN NOT NULL,
  PRIMARY KEY (batch_id, position)
);

-- What is counted before a deployment.
CREATE INDEX run_open_site ON run (site_id, step)
  WHERE status IN ('running', 'waiting', 'parked');
