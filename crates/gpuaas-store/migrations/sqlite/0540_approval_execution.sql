-- Which execution of an approved request had its effect: the first that commits one.
ALTER TABLE approval ADD COLUMN execution TEXT;
