-- Ids of the newest events that were taken in, as JSON: every look at the feed reaches back over
-- them, and a watcher that takes over must not take them in again.
ALTER TABLE site_watch ADD COLUMN event_window JSONB NOT NULL DEFAULT '[]';
