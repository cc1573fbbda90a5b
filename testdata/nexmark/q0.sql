-- Pass all bids on.
SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
