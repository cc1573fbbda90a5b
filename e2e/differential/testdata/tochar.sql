-- to_char, to_number, to_date, to_timestamp.
--! views
--! list nfmt = '999' | '000' | '9,999.99' | 'FM999.99' | 'S999' | '999S' | 'MI999' | '999MI' | 'PL999' | 'SG999' | '999PR' | 'L999' | '9.99EEEE' | 'RN' | 'FMRN' | '999th' | '999TH' | '0.00' | '99V99' | 'B999' | 'D99' | '9G999D9' | 'FM0999' | '999D' | '"x"999"y"' | 'FM9,999' | '9 9 9' | 'fm000.000' | 'rn' | '' | 'S0.0' | 'FM.99' | '99.99S' | 'FM9990.099PR'
--! list v = 0 | 12 | -12 | 485 | 1234.567 | -0.5 | 148.5 | 0.05
--! list tfmt = 'YYYY-MM-DD' | 'HH24:MI:SS' | 'HH12:MI AM' | 'HH:MI p.m.' | 'Day' | 'DAY' | 'day' | 'DY' | 'Dy' | 'dy' | 'Month' | 'MONTH' | 'month' | 'Mon' | 'MON' | 'FMMonth FMDD' | 'D' | 'ID' | 'DD' | 'DDD' | 'IDDD' | 'WW' | 'IW' | 'W' | 'Q' | 'CC' | 'J' | 'Y' | 'YY' | 'YYY' | 'Y,YYY' | 'IYYY' | 'IYY' | 'IY' | 'I' | 'RM' | 'rm' | 'MS' | 'US' | 'FF1' | 'FF3' | 'FF6' | 'SSSS' | 'SSSSS' | 'AD' | 'B.C.' | 'a.d.' | 'TZ' | 'OF' | 'DDth' | 'DDTH' | 'DDDth' | '"text"YYYY' | 'YYYYth' | 'FMDDth' | 'FXYYYY' | 'HH24hMI' | '\"YYYY\"' | 'TMMonth' | 'SP' | 'YYYYMMDDHH24MISS' | 'Dy, DD Mon YYYY HH24:MI:SS' | 'BC YYYY' | ''
--! list t = timestamp '2024-02-29 13:04:05.123456' | timestamp '1999-12-31 00:00:00' | timestamp '0044-03-15 12:00:00 BC'
--! queries
select to_char({v}, {nfmt});
select to_char({v}::float8, {nfmt});
select to_char({t}, {tfmt});
select to_char(125, '999'), to_char(125::bigint, '99'), to_char(125.8::real, '999D9'), to_char(-125.8, '999D99S'), to_char(1234567, '9,999,999'), to_char(0.1, '0.9'), to_char(12, '9990999.9'), to_char(485, 'RN'), to_char(4000, 'RN'), to_char(5.2, 'FMRN'), to_char(482, '999th'), to_char(1, '9th'), to_char(-3, '9th'), to_char(485, '"Good number:"999'), to_char(485.8, '"Pre:"999" Post:" .999'), to_char(12.45, '99V9'), to_char(0.0004859, '9.99EEEE'), to_char(1e10, '9.9EEEE'), to_char('nan'::float8, '999.99'), to_char('inf'::float8, '999'), to_char('nan'::numeric, '9.99EEEE'), to_char(null::int, '999');
select to_char(1.5, '9.9.9');
select to_char(1.5, '9EEEE9');
select to_char(12, 'S999S');
select to_char(12, 'PL999MI');
select to_char(12345, '999');
select to_char(1234.5, 'FM9G999D00'), to_char(-1234.5, 'FM999,999.00PR'), to_char(0, 'FM9.99'), to_char(0.5, 'FM90.09'), to_char(100, 'FM999.'), to_char(1e30::numeric, '9.9EEEE'), to_char(99.999, '99.99'), to_char(interval '15h 2m 12s', 'HH24:MI:SS'), to_char(interval '400 days', 'DDD'), to_char(interval '1 year 2 mons', 'YYYY MM'), to_char(time '10:00', 'HH24'), to_char(date '2024-01-01', 'DD Mon YYYY'), to_char(interval '-1 hour', 'HH24:MI'), to_char(interval '100 hours', 'HH24 HH12'), to_char(timestamp 'infinity', 'YYYY');
select to_char(interval '1 day', 'Day');
select to_char(1, 'YYYY');
select to_char('a', '9');
select to_char('2024-01-01', 'YYYY');
select to_char(true, '9');
select to_number('12,454.8-', '99G999D9S'), to_number('-12', 'S99'), to_number('1234', '9999'), to_number('1,234.5', '9,999.9'), to_number('$12', 'L99'), to_number('12abc', '99'), to_number('<12>', '99PR'), to_number('0.5', '9.9'), to_number('  12', '99'), to_number('12', '9'), to_number('.5', '.9'), to_number('-1.5', '9.9'), to_number('12-', '99MI'), to_number('1 2', '9 9'), to_number('123', '9V99'), to_number('42nd', '99th');
select to_number('abc', '999');
select to_number('', '999');
select to_number('12', '');
select to_number('XII', 'RN');
select to_number('1e5', '9EEEE');
select to_number(null, '99');
select to_date('05 Dec 2000', 'DD Mon YYYY'), to_date('20240229', 'YYYYMMDD'), to_date('2024-060', 'YYYY-DDD'), to_date('24-1-5', 'YY-MM-DD'), to_date('2024 5', 'IYYY IW'), to_date('J2451187', '"J"J'), to_date('2451187', 'J'), to_date('1/2/24', 'MM/DD/YY'), to_date('12 January 2024', 'DD Month YYYY'), to_date('44 BC', 'YYYY BC'), to_date('2024', 'YYYY'), to_date('99', 'YY'), to_date('2024-13', 'YYYY-DDD'), to_date('III 2024', 'RM YYYY'), to_date('Q1', 'YYYY') is null;
select to_date('2024-02-30', 'YYYY-MM-DD');
select to_date('2024-13-01', 'YYYY-MM-DD');
select to_date('abc', 'YYYY');
select to_date('2024-Foo-01', 'YYYY-Mon-DD');
select to_date('', 'YYYY');
select to_date('2024', '');
select to_date('2024-01-01', 'YYYY-MM-DD HH24');
select to_date('2024 2 4 1', 'YYYY MM W D');
select to_date('2024-1', 'YYYY-IW');
select to_date('21', 'CC'), to_date('0', 'YYYY');
select to_date('19990101', 'FXYYYYMMDD');
select to_date('1999 01', 'FXYYYY-MM');
select to_date('2024-W05-1', 'IYYY-"W"IW-ID');
select to_date('12345-01-01', 'YYYY-MM-DD');
select to_date('-44-01-01', 'YYYY-MM-DD');
select to_date('2024/01x05', 'YYYY/MMxDD');
select to_date('24 feb', 'YY mon'), to_date('2024 FEB 1', 'YYYY MON DD'), to_date('1 february 2024', 'DD MONTH YYYY');
select to_timestamp('05 Dec 2000', 'DD Mon YYYY'), to_timestamp('2024-01-01 13:14:15', 'YYYY-MM-DD HH24:MI:SS'), to_timestamp('2024-01-01 01:14 PM', 'YYYY-MM-DD HH12:MI PM'), to_timestamp('2024-01-01 12:14 am', 'YYYY-MM-DD HH:MI am'), to_timestamp('12.5', 'SS.MS'), to_timestamp('2024-01-01 10:00:00.123456', 'YYYY-MM-DD HH24:MI:SS.US'), to_timestamp('2024-01-01 10 +02', 'YYYY-MM-DD HH24 TZH'), to_timestamp('2024-01-01 10 -02:30', 'YYYY-MM-DD HH24 TZH:TZM'), to_timestamp('3661', 'SSSS'), to_timestamp('2024 10:00', 'YYYY HH24:MI'), to_timestamp('20240101101112', 'YYYYMMDDHH24MISS'), to_timestamp('1.25', 'SS.FF2'), to_timestamp('  2024', 'YYYY'), to_timestamp('2024--01', 'YYYY-MM'), to_timestamp('97/2/16 8:14:30', 'FMYYYY/FMMM/FMDD FMHH:FMMI:FMSS'), to_timestamp('2011$03!18 23_38_15', 'YYYY-MM-DD HH24:MI:SS');
select to_timestamp('2024-01-01 25:00', 'YYYY-MM-DD HH24:MI');
select to_timestamp('2024-01-01 13:00', 'YYYY-MM-DD HH12:MI');
select to_timestamp('x', 'HH24');
select to_timestamp('2024-01-01 10:00 EST', 'YYYY-MM-DD HH24:MI TZ');
select to_timestamp('2024-01-01', 'YYYY-MM-DD IYYY');
select to_timestamp('10 61', 'HH24 MI');
select to_timestamp('2024 Monday', 'YYYY Day');
select to_timestamp('15 2', 'DD D');
