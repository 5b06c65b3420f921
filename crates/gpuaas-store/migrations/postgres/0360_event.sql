-- The transaction that wrote a line: positions are given before commits, transactions below the oldest
-- one under way are all over. Lines of before are 0, and so first.
ALTER TABLE timeline_event ADD COLUMN xact BIGINT NOT NULL DEFAULT 0;
ALTER TABLE timeline_event ALTER COLUMN xact SET DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX timeline_event_order ON timeline_event (xact, id);
-- Where events are delivered, how far that is, and who does so.
CREATE TABLE event_sink (
  id UUID PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  url TEXT NOT NULL,
  site TEXT,
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  cursor_xact BIGINT NOT NULL,
  cursor_id BIGINT NOT NULL,
  delivered BIGINT NOT NULL DEFAULT 0,
  failing_since BIGINT,
  attempts BIGINT NOT NULL DEFAULT 0,
  next_try_at BIGINT,
  last_error TEXT NOT NULL DEFAULT '',
  lease_token BIGINT NOT NULL DEFAULT 0,
  lease_until BIGINT NOT NULL DEFAULT 0
);
-- What a sink did not take, whole: its line may be gone by now.
CREATE TABLE dead_letter (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  sink_id UUID NOT NULL REFERENCES event_sink (id),
  event JSONB NOT NULL,
  failed_at BIGINT NOT NULL,
  code TEXT NOT NULL,
  error TEXT NOT NULL,
  replaying BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX dead_letter_sink ON dead_letter (sink_id, id);
