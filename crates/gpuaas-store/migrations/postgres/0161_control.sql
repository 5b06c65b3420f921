-- What is remembered of the mark that control planes keep in a region, as JSON: who changes its
-- machines. Sites of one region share it, and it outlives them.
CREATE TABLE region_control (
  region TEXT PRIMARY KEY,
  control JSONB NOT NULL
);
