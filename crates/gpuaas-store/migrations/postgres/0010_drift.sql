ALTER TABLE observation ADD COLUMN alarm JSONB;

-- When the site's machines were last compared with what is remembered of them.
ALTER TABLE site_watch ADD COLUMN swept_at BIGINT;

-- What differs now; a row goes away when the difference does.
CREATE TABLE drift (
  node_id UUID NOT NULL REFERENCES node (id),
  kind TEXT NOT NULL,
  expected TEXT NOT NULL,
  found TEXT NOT NULL,
  action TEXT NOT NULL,
  since BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  PRIMARY KEY (node_id, kind)
);
