-- User of MAAS who made a difference, where MAAS tells one.
ALTER TABLE drift ADD COLUMN maas_user TEXT;
