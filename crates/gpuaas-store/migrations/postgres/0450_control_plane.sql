-- Control planes that have the database open, by lease: what each knows of its tables.
CREATE TABLE control_plane (
  id UUID PRIMARY KEY,
  version TEXT NOT NULL,
  -- Number of the newest migration that it knows.
  schema_known BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  renewed_at BIGINT NOT NULL,
  lease_until BIGINT NOT NULL
);
