CREATE SOURCE IF NOT EXISTS auction (
  id bigint, item_name varchar, initial_bid bigint, reserve bigint, date_time timestamp, expires timestamp, seller bigint, category bigint,
  WATERMARK FOR date_time AS date_time - INTERVAL '1 second'
) WITH (connector = 'nexmark', nexmark.table.type = 'Auction', nexmark.event.rate = '@rate@', nexmark.start.time = '@start@');

CREATE SOURCE IF NOT EXISTS person (
  id bigint, name varchar, email_address varchar, city varchar, state varchar, date_time timestamp,
  WATERMARK FOR date_time AS date_time - INTERVAL '1 second'
) WITH (connector = 'nexmark', nexmark.table.type = 'Person', nexmark.event.rate = '@rate@', nexmark.start.time = '@start@');

CREATE SOURCE IF NOT EXISTS bid (
  auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp, extra varchar,
  WATERMARK FOR date_time AS date_time - INTERVAL '1 second'
) WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.rate = '@rate@', nexmark.start.time = '@start@');

CREATE MATERIALIZED VIEW IF NOT EXISTS bids_per_window AS
SELECT window_start, auction, count(*) AS bids, max(price) AS top_price
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
GROUP BY window_start, auction;

CREATE MATERIALIZED VIEW IF NOT EXISTS hot_auctions AS
SELECT window_start, auction, bids, top_price FROM (
  SELECT *, row_number() OVER (PARTITION BY window_start ORDER BY bids DESC, auction) AS rank FROM bids_per_window
) ranked WHERE rank <= 10;

CREATE MATERIALIZED VIEW IF NOT EXISTS category_prices AS
SELECT a.category, count(*) AS auctions, sum(b.bids)::bigint AS bids, round(sum(b.volume) / sum(b.bids), 2) AS avg_price
FROM auction a JOIN (SELECT auction, count(*) AS bids, sum(price) AS volume FROM bid GROUP BY auction) b ON b.auction = a.id
GROUP BY a.category;

CREATE MATERIALIZED VIEW IF NOT EXISTS hot_channels AS
SELECT channel, count(*) AS bids, round(avg(price), 2) AS avg_price FROM bid GROUP BY channel ORDER BY bids DESC, channel LIMIT 5;

CREATE MATERIALIZED VIEW IF NOT EXISTS totals AS
SELECT b.bids + a.auctions + p.persons AS events, b.bids, a.auctions, b.volume
FROM (SELECT count(*) AS bids, coalesce(sum(price), 0) AS volume FROM bid) b,
  (SELECT count(*) AS auctions FROM auction) a, (SELECT count(*) AS persons FROM person) p;
