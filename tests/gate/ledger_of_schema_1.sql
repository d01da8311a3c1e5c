CREATE TABLE dp_dask_entries (
  seq BIGINT NOT NULL,
  at TEXT NOT NULL,
  dataset TEXT NOT NULL,
  kind TEXT NOT NULL,
  neighbours TEXT NOT NULL,
  epsilon TEXT NOT NULL,
  granted TEXT NOT NULL,
  spent TEXT NOT NULL,
  who TEXT NOT NULL,
  why TEXT NOT NULL,
  request TEXT,
  release TEXT,
  previous TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (seq),
  UNIQUE (request)
);
INSERT INTO "dp_dask_entries" VALUES(1,'2025-06-01T08:30:00.250+00:00','people','open','replace','1','1','0','steward','a study',NULL,NULL,'','e17f406dab0df3d82e648a319e2efdd2fbe5d840400ebff4ebdccb4ea684533f');
INSERT INTO "dp_dask_entries" VALUES(2,'2025-06-02T08:30:00.250+00:00','others','open','replace','rho 0.5','rho 0.5','rho 0','steward','',NULL,NULL,'e17f406dab0df3d82e648a319e2efdd2fbe5d840400ebff4ebdccb4ea684533f','e5ba50155c5374c64ef75a564c58ed7b7580e15c6b3807e7c784209d85373488');
INSERT INTO "dp_dask_entries" VALUES(3,'2025-06-03T08:30:00.250+00:00','people','charge','replace','0.1','1','0.1','analyst','visits','f113025ef1e32c6d73748685dc89de6f8b9bdbe6712c62c29430d96a502d6f58','{"id":"5cdeab81d482402b876859dac994d427","created":"2026-01-01T00:00:00+00:00","request":{"dataset":"people","statistic":{"column":"visits","bounds":{"lower":0.0,"upper":30.0},"outside":"clamp","grid":{"unit":1.0,"lower":0,"upper":30,"origin":0},"count_weight":0},"neighbours":"replace","n":50,"epsilon":"0.1","rho":null},"mechanism":"discrete_laplace","sampler":"opendp 0","sensitivity":30,"scale":450.0,"privacy_loss":0.06666666666666667,"noisy_sums":[7042117042],"noisy_count":null}','e5ba50155c5374c64ef75a564c58ed7b7580e15c6b3807e7c784209d85373488','791b2d34273715b2fe889b305b570cbbe9b8b67d971b7a11487d7f49f7c851f0');
INSERT INTO "dp_dask_entries" VALUES(4,'2025-06-04T08:30:00.250+00:00','people','grant','replace','0.25','1.25','0.1','steward','more',NULL,NULL,'791b2d34273715b2fe889b305b570cbbe9b8b67d971b7a11487d7f49f7c851f0','da936ae49eb7bbeb5e3197a47e36bdac1005ec686460bd79436aade6b30ddbdb');
INSERT INTO "dp_dask_entries" VALUES(5,'2025-06-05T08:30:00.250+00:00','others','charge','replace','rho 0.1','rho 0.5','rho 0.1','analyst','it''s rho','fefb65c6fc3957fe6d6854e16801f252e10d12c6f8489e78d9a765d38b0cc85b','{"id":"08152a11c7ce4a799ac18c6253f0279d","created":"2026-01-01T00:00:00+00:00","request":{"dataset":"others","statistic":{"column":"visits","bounds":{"lower":0.0,"upper":30.0},"outside":"clamp","grid":{"unit":1.0,"lower":0,"upper":30,"origin":0},"count_weight":0},"neighbours":"replace","n":50,"epsilon":null,"rho":"0.1"},"mechanism":"discrete_gaussian","sampler":"opendp 0","sensitivity":900,"scale":100.62305898749054,"privacy_loss":0.044444444444444446,"noisy_sums":[7042117042],"noisy_count":null}','da936ae49eb7bbeb5e3197a47e36bdac1005ec686460bd79436aade6b30ddbdb','5bcf7a22dd6d1728f8b20b353e777ca19c7a50b5a2f4dbb56a41003537773043');
CREATE TABLE dp_dask_ledger (
  schema_version INTEGER NOT NULL,
  salt TEXT NOT NULL,
  PRIMARY KEY (schema_version)
);
INSERT INTO "dp_dask_ledger" VALUES(1,'salt');
CREATE INDEX ix_dp_dask_entries_dataset ON dp_dask_entries (dataset);
