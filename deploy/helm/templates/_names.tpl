{{- define "labels" -}}
app.kubernetes.io/name: snapreplay
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "insidePod" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "insideContainer" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- /* The port that probes and metrics are asked at. That of their own has no TLS and no login. */}}
{{- define "probes" -}}
{{ if .Values.http.probesPort }}probes{{ else }}http{{ end }}
{{- end }}

{{- define "probesScheme" -}}
{{ if and .Values.http.tlsSecret (not .Values.http.probesPort) }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- /* The files that a request over HTTP needs, or its answer. */}}
{{- define "httpMounts" -}}
{{- if .Values.http.tokensSecret }}
- {name: http, mountPath: /etc/snapreplay/http, readOnly: true}
{{- end }}
{{- if .Values.http.tlsSecret }}
- {name: tls, mountPath: /etc/snapreplay/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "httpVolumes" -}}
{{- with .Values.http.tokensSecret }}
- {name: http, secret: {secretName: {{ . }}}}
{{- end }}
{{- with .Values.http.tlsSecret }}
- {name: tls, secret: {secretName: {{ . }}}}
{{- end }}
{{- end }}

{{- /* The name of an image. A tag such as 1.10 is a number unless it is quoted, and would be another one. */}}
{{- define "image" -}}
{{- if not (kindIs "string" .tag) }}{{ fail (printf "the tag %v of %s is a number: use --set-string, or quotes in a file of values" .tag .repository) }}{{ end -}}
{{ printf "%s:%s" .repository .tag | quote }}
{{- end }}
