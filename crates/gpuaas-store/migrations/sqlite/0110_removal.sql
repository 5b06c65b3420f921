-- A site or a profile that was removed stays for the history of its nodes, under another name.
ALTER TABLE site ADD COLUMN removed_at BIGINT;
ALTER TABLE profile ADD COLUMN removed_at BIGINT;
