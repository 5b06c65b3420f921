ALTER TABLE control_plane ADD COLUMN master_keys TEXT;
