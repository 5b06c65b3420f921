-- The latest runs that are alike, by which the next one's pace is judged.
CREATE INDEX run_class ON run (site_id, profile_id, kind, created_at, profile_revision);
