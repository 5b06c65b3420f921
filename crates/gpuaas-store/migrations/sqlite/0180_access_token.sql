-- Tokens of programs that use the admin API. Only their SHA-256 is stored.
CREATE TABLE access_token (
  id BLOB PRIMARY KEY,
  name TEXT NOT NULL,
  hash BLOB NOT NULL UNIQUE,
  -- Roles and their sites, as JSON.
  grants TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  last_used_at BIGINT,
  revoked_at BIGINT
);
CREATE UNIQUE INDEX access_token_name ON access_token (name) WHERE revoked_at IS NULL;
