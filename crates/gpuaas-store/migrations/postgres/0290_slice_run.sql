-- Launches and releases of claims: one row a claim, which goes from the one to the other.
CREATE TABLE slice_run (
  claim_id UUID PRIMARY KEY REFERENCES slice_claim (id),
  node_id UUID NOT NULL REFERENCES node (id),
  status TEXT NOT NULL,
  run JSONB NOT NULL,
  -- What the launch was made with: image, seed, domain, devices.
  spec JSONB NOT NULL,
  -- Grows with each write; who decided on an older one changes nothing.
  revision BIGINT NOT NULL,
  -- While it is running.
  due_at BIGINT NOT NULL
);
CREATE INDEX slice_run_due ON slice_run (due_at) WHERE status = 'running';
-- What agents saw of devices after a release.
CREATE TABLE slice_proof (
  claim_id UUID NOT NULL,
  number BIGINT NOT NULL,
  at BIGINT NOT NULL,
  proof JSONB NOT NULL,
  PRIMARY KEY (claim_id, number)
);
-- The claim that a task is a part of the launch or release of; null: none.
ALTER TABLE node_task ADD COLUMN claim_id UUID;
