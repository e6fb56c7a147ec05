-- A journal of format 1, as that version wrote it (sqlite3 .dump), in SQL that PostgreSQL reads as well.
CREATE TABLE about (
	format INTEGER NOT NULL
);
INSERT INTO "about" VALUES(1);
CREATE TABLE events (
	number INTEGER NOT NULL, 
	time FLOAT NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "events" VALUES(1,100.0,'submitted','{"kind": "submitted", "time": 100.0, "job": "1"}');
INSERT INTO "events" VALUES(2,101.5,'submitted','{"kind": "submitted", "time": 101.5, "job": "2"}');
INSERT INTO "events" VALUES(3,130.25,'ended','{"kind": "ended", "time": 130.25, "job": "1", "note": "it''s done; see log"}');
INSERT INTO "events" VALUES(4,140.0,'submitted','{"kind": "submitted", "time": 140.0, "job": "3"}');
INSERT INTO "events" VALUES(5,150.0,'round_due','{"kind": "round_due", "time": 150.0}');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	state INTEGER NOT NULL, 
	ended FLOAT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES(1,4,130.25,'{"id": "1", "name": "it''s first"}');
CREATE TABLE states (
	number INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "states" VALUES(3,'{"next": 3, "jobs": ["2"]}');
