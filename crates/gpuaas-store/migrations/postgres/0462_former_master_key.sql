-- Master keys that seal nothing any more. `ended_at`: no value is sealed with it any more.
CREATE TABLE former_master_key (
  key_id TEXT PRIMARY KEY,
  successor TEXT NOT NULL,
  begun_at BIGINT NOT NULL,
  ended_at BIGINT
);
-- A control plane that has not heard of the change is refused here, so nothing is sealed with a former
-- key behind the back of what moves its values.
CREATE FUNCTION refuse_former_master_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM former_master_key
             WHERE key_id = encode(substr(NEW.sealed, 2, 8), 'hex')) THEN
    RAISE EXCEPTION 'sealed with a former master key';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER secret_former_key BEFORE INSERT OR UPDATE OF sealed ON secret
FOR EACH ROW EXECUTE FUNCTION refuse_former_master_key();
CREATE TRIGGER request_replay_former_key BEFORE INSERT OR UPDATE OF sealed ON request_replay
FOR EACH ROW EXECUTE FUNCTION refuse_former_master_key();
CREATE TRIGGER approval_former_key BEFORE INSERT OR UPDATE OF sealed ON approval
FOR EACH ROW EXECUTE FUNCTION refuse_former_master_key();
