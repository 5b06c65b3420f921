-- Host images of sites: how far each has come. A deleted one stays, so that its name is not used again.
CREATE TABLE host_image (
  site_id BLOB NOT NULL REFERENCES site (id),
  -- In MAAS, without `custom/`.
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  resource_id BIGINT,
  parents TEXT NOT NULL,
  state TEXT NOT NULL,
  canary_nodes BIGINT,
  expires_at BIGINT,
  changed_by TEXT NOT NULL,
  changed_at BIGINT NOT NULL,
  reason TEXT NOT NULL,
  deleted_at BIGINT,
  revision BIGINT NOT NULL,
  PRIMARY KEY (site_id, name)
);
CREATE INDEX host_image_digest ON host_image (sha256);
-- Append-only.
CREATE TABLE host_image_event (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  site_id BLOB NOT NULL,
  name TEXT NOT NULL,
  body TEXT NOT NULL,
  at BIGINT NOT NULL,
  FOREIGN KEY (site_id, name) REFERENCES host_image (site_id, name)
);
CREATE INDEX host_image_event_image ON host_image_event (site_id, name, id);
