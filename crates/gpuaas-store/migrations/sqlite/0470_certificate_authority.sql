-- Authorities that sign nodes' certificates. Their keys are in `secret`.
CREATE TABLE certificate_authority (
  generation BIGINT PRIMARY KEY,
  state TEXT NOT NULL,
  certificate_pem TEXT NOT NULL,
  -- Its key, certified by the one before it: for whoever knows only that one.
  cross_pem TEXT,
  digest TEXT NOT NULL,
  not_after BIGINT NOT NULL,
  staged_at BIGINT NOT NULL,
  activated_at BIGINT,
  retired_at BIGINT
);
CREATE UNIQUE INDEX certificate_authority_state ON certificate_authority (state) WHERE state <> 'retired';
-- The generation that signed it.
ALTER TABLE node_certificate ADD COLUMN authority BIGINT NOT NULL DEFAULT 1;
-- SHA-256 of the bundle of trust anchors that the agent has; empty: that of its user-data.
ALTER TABLE heartbeat ADD COLUMN trust_digest TEXT NOT NULL DEFAULT '';
