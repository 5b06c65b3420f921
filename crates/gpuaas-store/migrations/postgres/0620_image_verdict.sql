-- What `gpuaas image lint` found in a file, by its digest, as a site was told.
CREATE TABLE image_verdict (
  site_id UUID NOT NULL REFERENCES site (id),
  sha256 TEXT NOT NULL,
  body JSONB NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (site_id, sha256)
);
