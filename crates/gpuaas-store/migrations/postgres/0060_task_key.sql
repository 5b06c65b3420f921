-- Keys that sign tasks; the private halves are secrets.
CREATE TABLE task_key (
  public_key TEXT PRIMARY KEY,
  state TEXT NOT NULL,
  until BIGINT,
  revision BIGINT NOT NULL
);
CREATE UNIQUE INDEX task_key_active ON task_key (state) WHERE state = 'active';
CREATE UNIQUE INDEX task_key_staged ON task_key (state) WHERE state = 'staged';
