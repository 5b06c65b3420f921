-- Secret inputs of bundles that have a value. The value is sealed, in secret, of the same owner.
CREATE TABLE input_secret (
  -- A site or a profile.
  owner UUID NOT NULL,
  bundle TEXT NOT NULL,
  input TEXT NOT NULL,
  set_by TEXT NOT NULL,
  set_at BIGINT NOT NULL,
  PRIMARY KEY (owner, bundle, input)
);
