-- The last heartbeat before the silence that was noted; none: no silence was.
ALTER TABLE heartbeat ADD COLUMN silent_since BIGINT;
-- The first heartbeat after the latest silence, or of the latest run; none: not known.
ALTER TABLE heartbeat ADD COLUMN online_since BIGINT;
-- One row: when a control plane last looked for silent agents, and since when that has been done
-- without a gap.
CREATE TABLE agent_watch (
  id BIGINT PRIMARY KEY,
  checked_at BIGINT NOT NULL,
  listening_since BIGINT NOT NULL
);
