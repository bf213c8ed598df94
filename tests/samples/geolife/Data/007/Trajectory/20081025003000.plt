Geolife trajectory
WGS 84
Altitude is in Feet
Reserved 3
0,2,255,My Track,0,0,2,8421376
0
39.96,116.43,0,-20,39746.0208333333,2008-10-25,00:30:00