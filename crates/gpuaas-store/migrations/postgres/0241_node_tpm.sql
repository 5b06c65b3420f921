-- The key of a node's TPM, as its agent showed it the first time.
CREATE TABLE node_tpm (
  node_id UUID PRIMARY KEY REFERENCES node (id),
  -- SHA-256 of the key, hexadecimal.
  key_sha256 TEXT NOT NULL,
  -- The run that it was shown in.
  run_id UUID NOT NULL REFERENCES run (id),
  since BIGINT NOT NULL
);
