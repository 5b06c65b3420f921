-- Moments of runs whose times are counted once: that they ended well, that their hosts were first ready
-- for slices. `counted`: they are in the table below.
CREATE TABLE run_moment (
  run_id BLOB NOT NULL REFERENCES run (id),
  moment TEXT NOT NULL,
  at BIGINT NOT NULL,
  counted BOOLEAN NOT NULL DEFAULT FALSE,
  PRIMARY KEY (run_id, moment)
);
CREATE INDEX run_moment_uncounted ON run_moment (run_id) WHERE NOT counted;
-- How many times of a class are at most `up_to` microseconds long, and longer than the bound before it.
CREATE TABLE run_time (
  site_id BLOB NOT NULL REFERENCES site (id),
  kind TEXT NOT NULL,
  measure TEXT NOT NULL,
  up_to BIGINT NOT NULL,
  runs BIGINT NOT NULL,
  micros BIGINT NOT NULL,
  PRIMARY KEY (site_id, kind, measure, up_to)
);
