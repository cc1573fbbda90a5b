package functions

import "math"

// Trigonometry in degrees. The values at the angles where they are round numbers are exact: each function is scaled by its own value there.

const degree = math.Pi / 180

// radians keeps the product in double precision: a constant would be rounded differently, and the quotients below not be exact.
func radians(x float64) float64 { return x * degree }

func sin0to30(x float64) float64 { return math.Sin(radians(x)) / math.Sin(radians(30)) / 2 }

func cos0to60(x float64) float64 { return 1 - (1-math.Cos(radians(x)))/(1-math.Cos(radians(60)))/2 }

func sinQuadrant(x float64) float64 {
	if x <= 30 {
		return sin0to30(x)
	}
	return cos0to60(90 - x)
}

func cosQuadrant(x float64) float64 {
	if x <= 60 {
		return cos0to60(x)
	}
	return sin0to30(90 - x)
}

// quadrant reduces an angle to 0…90 and tells the signs of its sine and cosine.
func quadrant(v float64) (x, sin, cos float64) {
	x, sin, cos = math.Mod(v, 360), 1, 1
	if x < 0 {
		x, sin = -x, -1
	}
	if x > 180 {
		x, sin = 360-x, -sin
	}
	if x > 90 {
		x, cos = 180-x, -1
	}
	return x, sin, cos
}

func sind(v float64) float64 {
	x, sign, _ := quadrant(v)
	return sign * sinQuadrant(x)
}

func cosd(v float64) float64 {
	x, _, sign := quadrant(v)
	return sign * cosQuadrant(x)
}

func tand(v float64) float64 {
	x, s, c := quadrant(v)
	r := s * c * (sinQuadrant(x) / cosQuadrant(x) / (sinQuadrant(45) / cosQuadrant(45)))
	if r == 0 {
		return 0
	}
	return r
}

func cotd(v float64) float64 {
	x, s, c := quadrant(v)
	r := s * c * (cosQuadrant(x) / sinQuadrant(x) / (cosQuadrant(45) / sinQuadrant(45)))
	if r == 0 {
		return 0
	}
	return r
}

// asinQuadrant and acosQuadrant take 0…1.
func asinQuadrant(x float64) float64 {
	if x <= 0.5 {
		return math.Asin(x) / math.Asin(0.5) * 30
	}
	return 90 - math.Acos(x)/math.Acos(0.5)*60
}

func acosQuadrant(x float64) float64 {
	if x <= 0.5 {
		return 90 - math.Asin(x)/math.Asin(0.5)*30
	}
	return math.Acos(x) / math.Acos(0.5) * 60
}

func asind(v float64) float64 {
	if v >= 0 {
		return asinQuadrant(v)
	}
	return -asinQuadrant(-v)
}

func acosd(v float64) float64 {
	if v >= 0 {
		return acosQuadrant(v)
	}
	return 90 + asinQuadrant(-v)
}

func atan2d(y, x float64) float64 { return math.Atan2(y, x) / math.Atan(1) * 45 }
