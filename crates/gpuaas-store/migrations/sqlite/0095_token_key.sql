-- SHA-256 of the public key that an enrollment token was used for: it works again for that one only.
ALTER TABLE token ADD COLUMN used_key BLOB;
