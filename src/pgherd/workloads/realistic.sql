CREATE TABLE person (
  id integer NOT NULL, first_name text, last_name text, email text, phone text, born date, occupation text, nationality text,
  registered timestamptz
);
CREATE TABLE address (
  id integer NOT NULL, person_id integer NOT NULL, street text, number text, city text, region text, postal_code text, country text,
  latitude numeric(8,5), longitude numeric(8,5)
);
CREATE TABLE listing (
  symbol text NOT NULL, company text, day date NOT NULL, opened numeric(10,2), high numeric(10,2), low numeric(10,2),
  closed numeric(10,2), volume bigint
);
