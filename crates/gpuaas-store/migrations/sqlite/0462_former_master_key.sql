-- Master keys that seal nothing any more. `ended_at`: no value is sealed with it any more.
CREATE TABLE former_master_key (
  key_id TEXT PRIMARY KEY,
  successor TEXT NOT NULL,
  begun_at BIGINT NOT NULL,
  ended_at BIGINT
);
-- A control plane that has not heard of the change is refused here, so nothing is sealed with a former
-- key behind the back of what moves its values.
CREATE TRIGGER secret_former_key_insert BEFORE INSERT ON secret
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
CREATE TRIGGER secret_former_key_update BEFORE UPDATE OF sealed ON secret
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
CREATE TRIGGER request_replay_former_key_insert BEFORE INSERT ON request_replay
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
CREATE TRIGGER request_replay_former_key_update BEFORE UPDATE OF sealed ON request_replay
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
CREATE TRIGGER approval_former_key_insert BEFORE INSERT ON approval
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
CREATE TRIGGER approval_former_key_update BEFORE UPDATE OF sealed ON approval
WHEN EXISTS (SELECT 1 FROM former_master_key WHERE key_id = lower(hex(substr(NEW.sealed, 2, 8))))
BEGIN SELECT RAISE(ABORT, 'sealed with a former master key'); END;
