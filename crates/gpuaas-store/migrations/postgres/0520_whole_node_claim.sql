-- Claims of bare-metal hosts: the node is their one device, of the kind `node`.
ALTER TABLE slice_claim ADD COLUMN whole_node BOOLEAN NOT NULL DEFAULT FALSE;
