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
