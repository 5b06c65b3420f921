-- Launches and releases of claims: one row a claim, which goes from the one to the other.
CREATE TABLE slice_run (
  claim_id BLOB PRIMARY KEY REFERENCES slice_claim (id),
  node_id BLOB NOT NULL REFERENCES node (id),
  status TEXT NOT NULL,
  run TEXT NOT NULL,
  -- What the launch was made with: image, seed, domain, devices.
  spec TEXT NOT NULL,
  -- Grows with each write; who decided on an older one changes nothing.
  revision BIGINT NOT NULL,
  -- While it is running.
  due_at BIGINT NOT NULL
) WITHOUT ROWID;
CREATE INDEX slice_run_due ON slice_run (due_at) WHERE status = 'running';
-- What agents saw of devices after a release.
CREATE TABLE slice_proof (
  claim_id BLOB NOT NULL,
  number BIGINT NOT NULL,
  at BIGINT NOT NULL,
  proof TEXT NOT NULL,
  PRIMARY KEY (claim_id, number)
) WITHOUT ROWID;
-- The claim that a task is a part of the launch or release of; null: none.
ALTER TABLE node_task ADD COLUMN claim_id BLOB;
