-- Does nothing in a connection of its own: a server process starts and ends for each transaction.
SELECT 1;
