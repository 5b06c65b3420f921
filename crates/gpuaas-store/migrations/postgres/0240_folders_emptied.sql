-- What the line says was always true; its old code said more.
UPDATE timeline_event SET code = 'folders_emptied' WHERE code = 'host_cleaned';
