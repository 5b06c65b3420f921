-- Slots of nodes: candidates as the last map has them, others as they were approved.
CREATE TABLE slice_slot (
  node_id UUID NOT NULL REFERENCES node (id),
  slot_index BIGINT NOT NULL,
  state TEXT NOT NULL,
  -- Of the map that the slot is of; of an approved one, that which was approved.
  digest TEXT NOT NULL,
  slot JSONB NOT NULL,
  -- In this state since, and why.
  since BIGINT NOT NULL,
  reason TEXT NOT NULL,
  -- Who approved it; null: nobody.
  approved_by TEXT,
  PRIMARY KEY (node_id, slot_index)
);
CREATE INDEX slice_slot_state ON slice_slot (state);
