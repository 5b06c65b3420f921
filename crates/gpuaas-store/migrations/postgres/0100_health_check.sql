-- One row for each opened store that says whether it can write and read; see Store::health_check.
CREATE TABLE health_check (
  instance UUID PRIMARY KEY,
  count BIGINT NOT NULL,
  at BIGINT NOT NULL
);
