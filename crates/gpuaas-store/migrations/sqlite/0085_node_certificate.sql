-- Certificates of nodes' agents. Found by what a connection shows: the SHA-256 of the certificate.
CREATE TABLE node_certificate (
  fingerprint BLOB PRIMARY KEY,
  serial TEXT NOT NULL,
  node_id BLOB NOT NULL REFERENCES node (id),
  run_id BLOB NOT NULL REFERENCES run (id),
  issued_at BIGINT NOT NULL,
  not_before BIGINT NOT NULL,
  not_after BIGINT NOT NULL,
  -- revoked or superseded; none while it counts.
  ended_as TEXT,
  ended_at BIGINT,
  end_reason TEXT
);
CREATE INDEX node_certificate_node ON node_certificate (node_id, issued_at);
