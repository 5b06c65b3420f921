-- User-data of guests whose launch has ended: nothing needs it any more. That of later launches is sealed in
-- secret, and deleted when the launch ends.
UPDATE slice_run SET spec = json_patch(spec, json_object('seed', json_object('user_data', '')))
WHERE (status <> 'running' OR run ->> 'kind' <> 'launch')
AND spec -> 'seed' ->> 'user_data' <> '';
UPDATE node_task SET spec = json_patch(spec, json_object('slice', json_object('seed', json_object('user_data', ''))))
WHERE claim_id IS NOT NULL AND finished_at IS NOT NULL
AND spec -> 'slice' -> 'seed' ->> 'user_data' <> '';
