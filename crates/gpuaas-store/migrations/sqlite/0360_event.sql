-- Lines have the order of their numbers here: there is one writer, so this is 0 in all of them.
ALTER TABLE timeline_event ADD COLUMN xact BIGINT NOT NULL DEFAULT 0;
-- Where events are delivered, how far that is, and who does so.
CREATE TABLE event_sink (
  id BLOB PRIMARY KEY,
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
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sink_id BLOB NOT NULL REFERENCES event_sink (id),
  event TEXT NOT NULL,
  failed_at BIGINT NOT NULL,
  code TEXT NOT NULL,
  error TEXT NOT NULL,
  replaying BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX dead_letter_sink ON dead_letter (sink_id, id);
