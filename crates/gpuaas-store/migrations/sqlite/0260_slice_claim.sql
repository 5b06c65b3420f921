-- Claims of slots. Those that ended stay, with the devices that they had.
CREATE TABLE slice_claim (
  id BLOB PRIMARY KEY,
  node_id BLOB NOT NULL REFERENCES node (id),
  owner TEXT NOT NULL,
  state TEXT NOT NULL,
  numa TEXT NOT NULL,
  -- Grows with each holder of the claim, and with each claim of one of its slots.
  fence BIGINT NOT NULL,
  slots TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  -- While it is reserved.
  expires_at BIGINT,
  ended_at BIGINT,
  reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX slice_claim_expiry ON slice_claim (expires_at) WHERE state = 'reserved';
-- Devices of claims that are live: no device of a node is in two of them.
CREATE TABLE slice_claim_device (
  node_id BLOB NOT NULL,
  kind TEXT NOT NULL,
  device TEXT NOT NULL,
  slot_index BIGINT NOT NULL,
  claim_id BLOB NOT NULL,
  PRIMARY KEY (node_id, kind, device)
) WITHOUT ROWID;
-- The live claim that has the slot; null: none.
ALTER TABLE slice_slot ADD COLUMN claim_id BLOB;
ALTER TABLE slice_slot ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
-- Why a claimed slot will not be free when it comes back; null: nothing is wrong with it.
ALTER TABLE slice_slot ADD COLUMN flagged TEXT;
DROP INDEX slice_slot_state;
-- Whether the gate is open, beside the report that says so.
ALTER TABLE node_gate ADD COLUMN passed BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE node_gate SET passed = json_extract(report, '$.passed');
